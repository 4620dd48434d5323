//! The check of a network's options in a config.

use sporran_config::{Check, Document};

use super::{model::Network, options::NetworkOptions};

impl Check for NetworkOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        for (name, message) in self.mistakes() {
            document.report_key(&format!("{key}.{name}"), message);
        }
        if let Some(from) = self.from.as_ref().filter(|from| !Network::is_in(from)) {
            document.report_key(&format!("{key}.from"), format!("no network in {}", from.display()));
        }
    }
}
