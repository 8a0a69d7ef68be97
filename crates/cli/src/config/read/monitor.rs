//! Reads `[monitor]`.

use sumlink_monitor::{Settings, Token};
use toml::Spanned;

use super::super::{parse_entry, raw};
use super::Reader;

impl Reader<'_> {
    /// Address and token of the monitoring port.
    pub(super) fn monitor(&mut self, raw: Option<raw::Monitor>) -> Option<Settings> {
        let raw = raw?;
        let span = raw.listen.span();
        let has_token = raw.token.is_some();
        let token = raw.token.map(|path| {
            let file = self.path(Some(path.clone()))?;
            self.parse(Some(path), |_| Token::load(&file))
        });
        let listen = self.parse(Some(raw.listen), |text| parse_entry(text))?;
        let settings = Settings {
            listen,
            token: token.flatten(),
            per_client: raw.per_client.is_none_or(Spanned::into_inner),
        };
        match settings.check() {
            // Its token is reported already.
            Err(_) if has_token => None,
            Err(error) => {
                self.wrong_value(span, error);
                None
            }
            Ok(()) => Some(settings),
        }
    }
}
