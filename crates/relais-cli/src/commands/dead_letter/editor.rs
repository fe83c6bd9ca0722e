//! A text in the operator's editor.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::CommandError;

/// A temporary file that only this user can read, because payloads may be confidential.
pub(super) struct Draft {
    path: PathBuf,
}

impl Draft {
    pub(super) fn new(name: &str, text: &str) -> Result<Self, CommandError> {
        let name = format!("relais-{name}-{}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| {
            CommandError::failed(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the editor ends. The command may have arguments, as in `code --wait`.
    pub(super) fn edit(&self, editor: &str) -> Result<String, CommandError> {
        let status = Command::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "relais"])
            .arg(&self.path)
            .status();
        let kept = self.path.display();
        match status {
            Ok(status) if status.success() => {
                let text = fs::read_to_string(&self.path).map_err(CommandError::failed)?;
                // Editors add a line end; white space around JSON has no meaning.
                Ok(text.trim().to_owned())
            }
            Ok(status) => {
                Err(CommandError::failed(format!("{editor}: {status}; your text is in {kept}")))
            }
            Err(error) => Err(CommandError::failed(format!("cannot start {editor}: {error}"))),
        }
    }

    pub(super) fn remove(self) {
        // A file that cannot be removed stays in the temporary directory.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_with_arguments_changes_a_private_file() {
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
