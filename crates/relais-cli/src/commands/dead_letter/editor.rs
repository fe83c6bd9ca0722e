//! A text in the editor of whoever sits at the terminal.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::Failure;

/// A file only this user can read: payloads may be anything.
pub(super) struct Draft {
    path: PathBuf,
}

impl Draft {
    pub(super) fn new(name: &str, text: &str) -> Result<Self, Failure> {
        let name = format!("relais-{name}-{}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the editor ends. What it is called with may have arguments, as in `code --wait`.
    pub(super) fn edit(&self, editor: &str) -> Result<String, Failure> {
        let status = Command::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "relais"])
            .arg(&self.path)
            .status();
        let kept = self.path.display();
        match status {
            Ok(status) if status.success() => {
                let text = fs::read_to_string(&self.path).map_err(Failure::failed)?;
                // White space around JSON says nothing, and editors add a line end.
                Ok(text.trim().to_owned())
            }
            Ok(status) => {
                Err(Failure::failed(format!("{editor}: {status}; your text is in {kept}")))
            }
            Err(error) => Err(Failure::failed(format!("cannot start {editor}: {error}"))),
        }
    }

    pub(super) fn remove(self) {
        // What stays is in the folder for what may go at any time.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_with_arguments_changes_the_text_and_nobody_else_can_read_it() {
        let draft = Draft::new("changes", "{\"total\": -1}").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(draft.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(draft.edit("sed -i 's/-1/1/'").unwrap(), "{\"total\": 1}");
        let path = draft.path().to_owned();
        draft.remove();
        assert!(!path.exists());
    }

    #[test]
    fn an_editor_that_fails_keeps_the_text() {
        let draft = Draft::new("fails", "{}").unwrap();
        let error = draft.edit("false").unwrap_err().to_string();
        assert!(error.contains("your text is in") && draft.path().exists(), "{error}");
        draft.remove();
    }
}
