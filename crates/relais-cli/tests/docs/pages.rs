//! The pages of the documentation, and the blocks of code in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// One block between fences.
pub(crate) struct Block {
    /// The file, from the top of the repository.
    pub(crate) page: String,
    pub(crate) line: usize,
    /// The text after the opening fence.
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Block {
    /// For messages.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// Every block of README, of `docs` and of the pages for those who work on relais.
pub(crate) fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}

/// The blocks of some kinds.
pub(crate) fn blocks_in(kinds: &[&str]) -> Vec<Block> {
    blocks().into_iter().filter(|block| kinds.contains(&block.kind.as_str())).collect()
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let page = page.strip_prefix(root()).unwrap().display().to_string();
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(kind)) => {
                let kind = kind.trim().to_owned();
                open =
                    Some(Block { page: page.clone(), line: index + 1, kind, text: String::new() });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: the last block does not end");
    blocks
}

pub(crate) fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    pages.sort();
    pages
}

/// The text of a file of the repository.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Returns true if the lines of a block are consecutive in a program, with any indentation.
pub(crate) fn is_part_of(block: &str, program: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (wanted, all) = (lines(block), lines(program));
    all.windows(wanted.len().max(1)).any(|window| window == wanted)
}
