//! Checks of the pages: the table of contents is complete, and no link leads nowhere.

use std::{collections::BTreeSet, fmt};

use super::pages::{Pages, SUMMARY, anchors, links, resolve};

/// Something to fix in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageFinding {
    page: String,
    line: usize,
    text: String,
}

impl fmt::Display for PageFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.text)
    }
}

impl PageFinding {
    pub(super) fn new(page: &str, line: usize, text: String) -> Self {
        Self { page: page.to_owned(), line, text }
    }
}

/// Every page of `docs` is in the table of contents once, and nothing else is.
pub(super) fn summary(pages: &Pages) -> Vec<PageFinding> {
    let Some(text) = pages.text(SUMMARY) else {
        return vec![PageFinding::new(
            SUMMARY,
            0,
            "is missing: it is the table of contents".to_owned(),
        )];
    };
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for link in links(text) {
        let path = resolve(SUMMARY, &link.target);
        if !listed.insert(path.clone()) {
            findings.push(PageFinding::new(SUMMARY, link.line, format!("lists `{path}` twice")));
        }
    }
    for page in pages.book().filter(|page| !listed.contains(*page)) {
        findings.push(PageFinding::new(SUMMARY, 0, format!("does not list `{page}`: add it")));
    }
    findings
}

/// Every relative link leads to a file, and its anchor to a heading.
pub(super) fn links_of(pages: &Pages, page: &str, text: &str) -> Vec<PageFinding> {
    let mut findings = Vec::new();
    for link in links(text) {
        let path = resolve(page, &link.target);
        if !pages.has(&path) {
            let wrong = format!("the link to `{}` leads nowhere", link.target);
            findings.push(PageFinding::new(page, link.line, wrong));
            continue;
        }
        let (Some(anchor), Some(there)) = (link.anchor, pages.text(&path)) else { continue };
        if path.ends_with(".md") && !anchors(there).contains(&anchor) {
            let wrong = format!("`{path}` has no heading for the anchor `#{anchor}`");
            findings.push(PageFinding::new(page, link.line, wrong));
        }
    }
    findings
}

/// Checks the links of all pages.
pub(super) fn links_everywhere(pages: &Pages) -> Vec<PageFinding> {
    pages.markdown().flat_map(|(page, text)| links_of(pages, page, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[PageFinding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_that_is_missing_or_listed_twice_in_the_table_of_contents_is_found() {
        assert_eq!(summary(&Pages::default()).len(), 1);
        let contents = "# Summary\n- [A](a.md)\n- [A again](a.md)\n- [C](more/c.md)\n";
        let pages = Pages::of(&[
            (SUMMARY, contents),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/more/c.md", ""),
            ("README.md", ""),
        ]);
        let expected = [
            "docs/SUMMARY.md:3: lists `docs/a.md` twice",
            "docs/SUMMARY.md:0: does not list `docs/b.md`: add it",
        ];
        assert_eq!(texts(&summary(&pages)), expected);
    }

    #[test]
    fn a_link_or_an_anchor_that_leads_nowhere_is_found() {
        let page = "[a](b.md#part) [c](b.md#missing) [d](missing.md) [e](#here) [f](../README.md)\n\
                    ## Here\n[g](#there) [h](images/x.svg) [i](../docs)\n";
        let pages = Pages::of(&[
            ("docs/a.md", page),
            ("docs/b.md", "## Part\n"),
            ("docs/images/x.svg", ""),
            ("README.md", ""),
        ]);
        let expected = [
            "docs/a.md:1: `docs/b.md` has no heading for the anchor `#missing`",
            "docs/a.md:1: the link to `missing.md` leads nowhere",
            "docs/a.md:3: `docs/a.md` has no heading for the anchor `#there`",
        ];
        assert_eq!(texts(&links_everywhere(&pages)), expected);
    }
}
