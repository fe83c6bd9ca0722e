//! The files of the repository, read once.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Entries at the top that are not part of the repository. `.git` of a second working tree is a file.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// One text file; its path is relative to the root and uses `/`.
#[derive(Clone, Debug)]
pub(super) struct TreeFile {
    pub(super) path: String,
    pub(super) text: String,
}

impl TreeFile {
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Lines with their number.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// All text files, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<TreeFile>,
}

impl Tree {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add_folder(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// Files whose path starts and ends like this.
    pub(super) fn under<'a>(
        &'a self,
        folder: &'a str,
        ending: &'a str,
    ) -> impl Iterator<Item = &'a TreeFile> {
        let files = self.files.iter();
        files.filter(move |file| file.path.starts_with(folder) && file.path.ends_with(ending))
    }

    pub(super) fn get(&self, path: &str) -> Option<&TreeFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns true if there is such a file, or a folder with something in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let entries = fs::read_dir(folder)
            .with_context(|| format!("cannot list the folder {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if LEFT_OUT.contains(&path.as_str()) {
                continue;
            }
            if kind.is_dir() {
                self.add_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                // What is not text has nothing to check but its name.
                let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                self.files.push(TreeFile { path, text });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Tree {
    /// A repository of a few samples.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| TreeFile { path: (*path).into(), text: (*text).into() };
        Self { files: files.iter().map(file).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_found_by_their_whole_name() {
        let tree = Tree::of(&[("docs/a.md", ""), ("README.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/a.md") && tree.has(""));
        assert!(!tree.has("doc") && !tree.has("a.md"));
    }
}
