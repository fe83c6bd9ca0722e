//! libfaketime, which gives a program another time of day: found or unpacked from Debian's package.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    apt,
    servers::{ServerOutcome, Tool},
};

pub(crate) const NAME: &str = "libfaketime";
/// The variable that names the library.
pub(crate) const VARIABLE: &str = "RELAIS_TEST_FAKETIME";

/// The one for programs with threads, in a folder of the system's own.
const FILE: &str = "faketime/libfaketimeMT.so.1";

/// A hint for machines on which we cannot get it.
const HINT: &str = "install the package `libfaketime`, or run as root where apt-get is";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    if place(target).is_some() || !apt::possible() {
        return Ok(());
    }
    apt::unpack(NAME, &target.join(NAME))
}

pub(crate) fn look(target: &Path) -> ServerOutcome {
    let Some(library) = place(target) else {
        return ServerOutcome::Missing { name: NAME, why: HINT.to_owned() };
    };
    let variables = vec![(VARIABLE, library.display().to_string())];
    ServerOutcome::Found(Tool { name: NAME, version: String::from("(any version)"), variables })
}

fn place(target: &Path) -> Option<PathBuf> {
    let folders = [target.join(NAME).join("usr/lib"), PathBuf::from("/usr/lib")];
    folders.iter().find_map(|folder| below(folder))
}

/// The library in a folder, or in one of its folders: each kind of machine has its own.
fn below(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut places = entries.chain([folder.to_path_buf()]).map(|place| place.join(FILE));
    places.find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_library_is_found_in_the_folder_of_any_machine() {
        let scratch = Scratch::new().unwrap();
        assert_eq!(below(scratch.path()), None);
        let place = scratch.path().join("some-machine").join(FILE);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, "").unwrap();
        assert_eq!(below(scratch.path()), Some(place));
    }
}
