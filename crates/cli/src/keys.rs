//! `sumlink keygen` and `sumlink pubkey`.

use serde_json::json;
use sumlink_transport::SecretKey;

use crate::args::{KeygenArgs, PubkeyArgs};
use crate::error::CliError;
use crate::output::{print, print_json};

/// Makes a key pair; the public key is the last word printed.
pub fn keygen(args: &KeygenArgs) -> Result<(), CliError> {
    if args.out.as_os_str() == "-" {
        let reason = "--out: name a file; a secret key is not printed";
        return Err(CliError::Usage(reason.to_owned()));
    }
    let key = SecretKey::generate()?;
    key.save(&args.out)?;
    let public = key.public();
    if args.json {
        return print_json(&json!({ "file": args.out, "public_key": public.to_string() }));
    }
    print(&format!(
        "secret key written to {}; public key: {public}\n",
        args.out.display()
    ))
}

/// Prints the public key of a key file.
pub fn pubkey(args: &PubkeyArgs) -> Result<(), CliError> {
    let public = SecretKey::load(&args.file)?.public();
    if args.json {
        return print_json(&json!({ "file": args.file, "public_key": public.to_string() }));
    }
    print(&format!("{public}\n"))
}
