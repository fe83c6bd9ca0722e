//! The browser the console is tested in: Chromium and its driver, found or installed. Nothing is started
//! here; each test has a driver of its own.

use std::process::Command;

use anyhow::Result;

use crate::{
    apt, command,
    servers::{ServerOutcome, Tool},
};

pub(crate) const NAME: &str = "Chromium";
/// The variable that names the driver's program; it finds the browser itself.
pub(crate) const DRIVER_VARIABLE: &str = "RELAIS_TEST_CHROMEDRIVER";

const DRIVER: &str = "chromedriver";
const BROWSER: &str = "chromium";
/// The fonts are those the console prefers: pictures of it look the same on every machine.
const PACKAGES: [&str; 4] = ["chromium", "chromium-driver", "fonts-inter", "fonts-jetbrains-mono"];

/// A hint for machines on which we cannot install it.
const HINT: &str = "no browser found (chromium, chromedriver): install the packages `chromium` and \
     `chromium-driver`, or run as root where apt-get is";

pub(crate) fn install_if_missing() -> Result<()> {
    let there = command::find(DRIVER).is_some() && command::find(BROWSER).is_some();
    if there || !apt::possible() {
        return Ok(());
    }
    apt::install(&PACKAGES)
}

pub(crate) fn look() -> ServerOutcome {
    let (Some(driver), Some(_)) = (command::find(DRIVER), command::find(BROWSER)) else {
        return ServerOutcome::Missing { name: NAME, why: HINT.to_owned() };
    };
    let answer = command::output(Command::new(&driver).arg("--version")).unwrap_or_default();
    let variables = vec![(DRIVER_VARIABLE, driver.display().to_string())];
    ServerOutcome::Found(Tool { name: NAME, version: version_in(&answer), variables })
}

/// `ChromeDriver 140.0.1 (abc)`.
fn version_in(answer: &str) -> String {
    answer.split_whitespace().nth(1).unwrap_or("of an unknown version").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_the_driver_says() {
        assert_eq!(version_in("ChromeDriver 140.0.7339.80 (deadbeef)"), "140.0.7339.80");
        assert_eq!(version_in(""), "of an unknown version");
    }
}
