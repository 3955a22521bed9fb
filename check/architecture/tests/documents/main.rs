//! Documents name existing files: each relative link leads to a file with a heading for its anchor, and each
//! path between backticks names a file. Paths in comments of the sources must exist as well.

#[path = "../imports/paths.rs"]
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use paths::normal;

/// Endings of files whose names are checked.
const ENDINGS: &[&str] = &["md", "rs", "py", "toml", "patch", "json"];
/// The folders with the sources of the project.
const FOLDERS: &[&str] = &["product", "systems", "lab", "check", "examples"];

#[test]
fn links_lead_to_files_and_headings() {
    let documents = documents();
    let mut wrong = Vec::new();
    for (path, text) in &documents {
        let folder = path.parent().expect("a document lies in a folder");
        for link in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                _ => normal(&folder.join(file)),
            };
            if !root().join(&target).exists() {
                wrong.push(format!("{}: no {link}", path.display()));
            } else if let Some(text) = documents.get(&target)
                && !anchor.is_empty()
                && !anchors(text).contains(anchor)
            {
                wrong.push(format!("{}: no heading {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_between_backticks_are_those_of_files() {
    let mut files = BTreeSet::new();
    for folder in FOLDERS.iter().chain(&["docs", ".ci", ".github"]) {
        each_file(&root().join(folder), &mut |path| {
            files.insert(Path::new("/").join(path));
        });
    }
    for entry in std::fs::read_dir(root()).expect("the root is readable") {
        files.insert(Path::new("/").join(entry.expect("the root is readable").file_name()));
    }
    let ends_so = |name: &str| {
        let ending = format!("/{name}");
        files
            .iter()
            .any(|file| file.to_str().is_some_and(|file| file.ends_with(&ending)))
    };
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for name in code(&text).filter(|name| is_path(name)) {
            if !ends_so(name.trim_start_matches("./")) {
                wrong.push(format!("{}: no `{name}`", path.display()));
            }
        }
    }
    for folder in FOLDERS {
        each_file(&root().join(folder), &mut |path| {
            if path.extension().is_none_or(|ending| ending != "rs") {
                return;
            }
            let text = std::fs::read_to_string(root().join(path)).expect("a source is readable");
            for line in text
                .lines()
                .filter(|line| line.trim_start().starts_with("//"))
            {
                let names = code(line).filter(|name| is_rooted(name));
                for name in names.filter(|name| !root().join(name).exists()) {
                    wrong.push(format!("{}: no `{name}`", path.display()));
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns whether a text between backticks is a path with a folder and a known ending.
fn is_path(name: &str) -> bool {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "_-./".contains(sign);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    name.contains('/')
        && !name.starts_with('/')
        && name.chars().all(is_plain)
        && !name
            .split('/')
            .any(|part| matches!(part, "target" | ".." | "NAME"))
        && ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

/// Returns whether a text between backticks is a path from the root of the project to a file or folder.
fn is_rooted(name: &str) -> bool {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "_-./".contains(sign);
    let (first, rest) = name.split_once('/').unwrap_or_default();
    (first == "docs" || FOLDERS.contains(&first)) && !rest.is_empty() && name.chars().all(is_plain)
}

/// Returns the texts between backticks, outside of fenced blocks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut in_fence = false;
    let lines = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        !in_fence && !is_fence
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns the targets of relative links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
}

/// Returns the anchors of the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |sign: &char| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_');
            heading
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

/// Returns the documents by their paths from the root. `CHANGELOG.md` describes the past and is left out.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    each_file(&root().join("docs"), &mut |path| {
        if path.extension().is_some_and(|ending| ending == "md") {
            found.insert(path.to_owned(), String::new());
        }
    });
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ] {
        found.insert(name.into(), String::new());
    }
    for (path, text) in &mut found {
        *text = std::fs::read_to_string(root().join(path)).expect("a document is readable");
    }
    found
}

/// Passes every file below a folder to `each`, by its path from the root.
fn each_file(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).expect("a folder is readable") {
        let path = entry.expect("a folder is readable").path();
        if !path.is_dir() {
            each(path.strip_prefix(root()).expect("it lies below the root"));
        } else if path.file_name().is_none_or(|name| name != "target") {
            each_file(&path, each);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
        .to_owned()
}

#[test]
fn links_code_and_anchors_are_read() {
    let text =
        "# One, `two`: three\n[a](b.md#c) [d](https://e)\n`x/y.rs` `plain`\n```\n`z/w.rs`\n```\n";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md#c"]);
    assert!(anchors(text).contains("one-two-three"));
    let paths: Vec<&str> = code(text).filter(|name| is_path(name)).collect();
    assert_eq!(paths, ["x/y.rs"]);
}
