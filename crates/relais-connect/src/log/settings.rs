//! The keys of kind `log` in the configuration.

use relais_core::{setting::FilePath, settings};

settings! {
    /// `[[destination]]` of kind `log`
    pub struct LogTargetKeys {
        /// a file to append to, readable for its owner alone
        path: Option<FilePath> => "stdout";
    }
}
