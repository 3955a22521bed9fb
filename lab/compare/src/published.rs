//! Tables of a page, made of results that are kept as JSON.
//!
//! A line `<!-- results/NAME.json 2 -->` stands above a table. The table is the second one of that file: a list of lines, each a
//! list of cells, of which the first line is the heading. Everything else on the page is prose.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Error of making the tables of a page.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum PublishError {
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {source}", path.display())]
    Parse {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{0}: write the path of a file and the number of one of its tables")]
    Marker(String),
}

type Table = Vec<Vec<String>>;

/// Returns the text of a page whose tables are those of the results. Paths are relative to the folder of the page.
pub fn with_tables(page: &Path) -> Result<String, PublishError> {
    let folder = page.parent().unwrap_or(Path::new("."));
    let mut results: BTreeMap<String, Vec<Table>> = BTreeMap::new();
    let text = read(page)?;
    let mut lines = text.lines().peekable();
    let mut made = String::new();
    while let Some(line) = lines.next() {
        made.push_str(line);
        made.push('\n');
        let Some(marker) = marker(line) else { continue };
        let wrong = || PublishError::Marker(line.to_owned());
        let (name, number) = marker.split_once(' ').ok_or_else(wrong)?;
        if !results.contains_key(name) {
            let path = folder.join(name);
            let tables = serde_json::from_str(&read(&path)?);
            let tables = tables.map_err(|source| PublishError::Parse { path, source })?;
            results.insert(name.to_owned(), tables);
        }
        let number: usize = number.parse().map_err(|_| wrong())?;
        let table = number.checked_sub(1).and_then(|at| results[name].get(at));
        made.push('\n');
        made.push_str(&markdown(table.ok_or_else(wrong)?));
        let is_old = |line: &&str| line.is_empty() || line.starts_with('|');
        while lines.next_if(is_old).is_some() {}
        if lines.peek().is_some() {
            made.push('\n');
        }
    }
    Ok(made)
}

fn read(path: &Path) -> Result<String, PublishError> {
    fs::read_to_string(path).map_err(|source| PublishError::Read {
        path: path.to_owned(),
        source,
    })
}

fn marker(line: &str) -> Option<&str> {
    let marker = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    marker.starts_with("results/").then_some(marker)
}

fn markdown(table: &Table) -> String {
    let line = |cells: &Vec<String>| {
        let cell = |cell: &String| match cell.as_str() {
            "" => " |".to_owned(),
            cell => format!(" {cell} |"),
        };
        format!("|{}\n", cells.iter().map(cell).collect::<String>())
    };
    let mut lines: Vec<String> = table.iter().map(line).collect();
    if let Some(heading) = table.first() {
        lines.insert(1, format!("|{}\n", "---|".repeat(heading.len())));
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_page_are_those_of_the_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = root.join("docs/papers/reproduction.md");
        let is_same = with_tables(&page).unwrap() == fs::read_to_string(&page).unwrap();
        assert!(
            is_same,
            "run `cargo run -p flowstone-lab --example reproduction`"
        );
    }

    #[test]
    fn tables_replace_those_below_their_markers() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        fs::create_dir(folder.path().join("results")).unwrap();
        fs::write(
            folder.path().join("results/one.json"),
            r#"[[["a"]], [["b", ""], ["1", "2"]]]"#,
        )
        .unwrap();
        let with = |table| format!("text\n\n<!-- results/one.json 2 -->\n\n{table}\n\nend\n");
        fs::write(&page, with("| old |")).unwrap();
        let made = with_tables(&page).unwrap();
        assert_eq!(made, with("| b | |\n|---|---|\n| 1 | 2 |"));
        fs::write(&page, "<!-- results/one.json 3 -->\n").unwrap();
        assert!(with_tables(&page).is_err());
    }
}
