//! Programs of other versions: lists of scripts that continue where this program's end.

use relais_store::Script;

/// The scripts of a later program, or of one that was changed. They live as long as the test program.
pub(crate) fn edition(scripts: &[Script], more: &[Script]) -> &'static [Script] {
    Vec::leak([scripts, more].concat())
}

/// The next script after this program's, which older programs can live with.
pub(crate) fn grows(scripts: &[Script], sql: &'static str) -> Script {
    let known = scripts.last().unwrap().number;
    Script { number: known + 1, name: "grow", needs: known, sql }
}

/// The next script after this program's, which older programs cannot live with.
pub(crate) fn breaks(scripts: &[Script], sql: &'static str) -> Script {
    let grown = grows(scripts, sql);
    Script { name: "break", needs: grown.number, ..grown }
}

/// The same script with only its first `kept` statements and then `last`.
pub(crate) fn cut(script: &Script, kept: usize, last: &str) -> Script {
    let mut sql: Vec<String> = statements(script.sql).into_iter().take(kept).collect();
    sql.push(last.to_owned());
    Script { sql: String::leak(sql.join("\n")), ..*script }
}

/// A script's statements: each ends with the `;` at the end of a line that is not quoted, a SQLite trigger with `END;`.
pub(crate) fn statements(sql: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut statement = String::new();
    for line in sql.lines().filter(|line| !line.trim_start().starts_with("--")) {
        statement.push_str(line);
        statement.push('\n');
        let quotes = dollar_quotes(&statement);
        let in_trigger = quotes == 0 && statement.contains("\nBEGIN\n") && line != "END;";
        let inside = quotes % 2 == 1 || in_trigger;
        if line.ends_with(';') && !inside {
            statements.push(std::mem::take(&mut statement).trim_start().to_owned());
        }
    }
    assert_eq!(statement.trim(), "", "a script ends with a statement");
    statements
}

/// Counts `$$` and `$tag$`.
fn dollar_quotes(text: &str) -> usize {
    let is_tag = |tag: &str| tag.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (mut count, mut rest) = (0, text);
    while let Some((_, after)) = rest.split_once('$') {
        rest = after;
        if let Some((tag, behind)) = after.split_once('$')
            && is_tag(tag)
        {
            count += 1;
            rest = behind;
        }
    }
    count
}
