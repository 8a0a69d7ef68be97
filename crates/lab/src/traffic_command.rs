//! The programs that make the traffic of a run, as subcommands.

use std::net::SocketAddr;

use crate::error::LabError;
use crate::prose::print;
use crate::scenario::VideoProtocol;
use crate::traffic::{Channel, Http3, Spec, client, curl, datagrams, http3, library, many, server};
use crate::video::receive;

/// `sumlink-lab traffic`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TrafficCommand {
    /// Do what connections ask for until killed; prints what uploads brought
    Serve {
        /// Where to listen
        #[arg(long)]
        listen: SocketAddr,
        /// Listen for MPTCP
        #[arg(long)]
        mptcp: bool,
        /// What carries the bytes, as a JSON object; the socket itself without it
        #[arg(long)]
        channel: Option<String>,
        /// Serve flows of datagrams on this address as well
        #[arg(long)]
        datagrams: Option<SocketAddr>,
        /// Serve many connections at a time on this address as well
        #[arg(long)]
        many: Option<SocketAddr>,
        /// Serve downloads with curl on this address as well
        #[arg(long)]
        curl: Option<SocketAddr>,
        /// Serve HTTP/3 as well, with an address and keys in a JSON object
        #[arg(long)]
        http3: Option<String>,
    },
    /// Receive one pushed video until killed; prints a line for each picture
    Watch {
        /// Where to listen
        #[arg(long)]
        listen: SocketAddr,
        /// Listen for MPTCP
        #[arg(long)]
        mptcp: bool,
        /// Expect RTMP, which ffmpeg takes
        #[arg(long)]
        rtmp: bool,
        /// Expect SRT, which ffmpeg takes
        #[arg(long, conflicts_with_all = ["rtmp", "mptcp"])]
        srt: bool,
    },
    /// Carry out a workload and print what arrived
    Run {
        /// A JSON object
        #[arg(long)]
        spec: String,
    },
}

/// Runs the subcommand.
pub(crate) fn run(command: TrafficCommand) -> Result<(), LabError> {
    match command {
        TrafficCommand::Serve {
            listen,
            mptcp,
            channel,
            datagrams,
            many,
            curl,
            http3,
        } => {
            if let Some(address) = many {
                let failed = |error| LabError::system(format!("listening on {address}"), error);
                many::serve(address).map_err(failed)?;
            }
            if let Some(address) = curl {
                let failed = |error| LabError::system(format!("listening on {address}"), error);
                curl::serve(address).map_err(failed)?;
            }
            if let Some(address) = datagrams {
                datagrams::serve(address)?;
            }
            if let Some(text) = http3 {
                let parsed: Http3 = serde_json::from_str(&text)
                    .map_err(|error| LabError::Usage(format!("--http3: {error}")))?;
                http3::serve(parsed)?;
            }
            let channel = channel.map(|text| serde_json::from_str(&text)).transpose();
            let channel: Option<Channel> =
                channel.map_err(|error| LabError::Usage(format!("--channel: {error}")))?;
            match channel.unwrap_or_default() {
                Channel::Library { keys, variant } => library::serve(listen, &keys, &variant),
                channel => server::serve(listen, mptcp, &channel),
            }
        }
        TrafficCommand::Watch {
            listen,
            mptcp,
            rtmp,
            srt,
        } => {
            let protocol = match (rtmp, srt) {
                (true, _) => VideoProtocol::Rtmp,
                (_, true) => VideoProtocol::Srt,
                _ => VideoProtocol::MpegTs,
            };
            receive::watch(listen, mptcp, protocol)
        }
        TrafficCommand::Run { spec } => {
            let spec: Spec = serde_json::from_str(&spec)
                .map_err(|error| LabError::Usage(format!("--spec: {error}")))?;
            let records = client::run(&spec);
            let text = serde_json::to_string(&records)
                .map_err(|error| LabError::system("writing JSON", error))?;
            print(&format!("{text}\n"))?;
            Ok(())
        }
    }
}
