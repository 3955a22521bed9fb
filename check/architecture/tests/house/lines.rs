//! Lines of code that a build of the product compiles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Beginnings of attributes of items that a build does not compile.
const LEFT_OUT: &[&str] = &["#[cfg(test)]", "#[cfg(any(test, feature = "];

/// Counts the lines of these sources that are neither empty nor comments, without tests and the modules that tests alone need.
/// The sources are formatted: an item ends with a brace that stands below its first letter.
pub(crate) fn built(sources: &[(PathBuf, String)]) -> usize {
    let in_src = |path: &Path| path.iter().any(|folder| folder == "src");
    let sources = sources.iter().filter(|(path, _)| in_src(path));
    let (mut built, mut unbuilt) = (Vec::new(), BTreeSet::new());
    for (path, text) in sources {
        let (count, modules) = read(text);
        let beside = path.parent().expect("a source lies in a folder");
        let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
            None | Some("lib" | "mod" | "main") => beside.to_owned(),
            Some(stem) => beside.join(stem),
        };
        unbuilt.extend(modules.into_iter().map(|module| folder.join(module)));
        built.push((path, count));
    }
    let is_built = |path: &Path| {
        let mut above = path.ancestors();
        !above.any(|folder| unbuilt.contains(&folder.with_extension("")))
    };
    let built = built.iter().filter(|(path, _)| is_built(path));
    built.map(|(_, count)| count).sum()
}

/// Returns the lines of code of one source, and the modules that it declares for tests alone.
fn read(text: &str) -> (usize, Vec<String>) {
    let (mut count, mut modules) = (0, Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim();
        if code.is_empty() || code.starts_with("//") {
            continue;
        }
        if !LEFT_OUT.iter().any(|start| code.starts_with(start)) {
            count += 1;
            continue;
        }
        let mut item = lines.by_ref().skip_while(|line| {
            let line = line.trim();
            line.starts_with("#[") || line.starts_with("//")
        });
        let Some(head) = item.next() else { break };
        if let Some(name) = head.trim().strip_suffix(';') {
            modules.extend(name.rsplit_once("mod ").map(|(_, name)| name.to_owned()));
        } else {
            let indent = &head[..head.len() - head.trim_start().len()];
            let end = |line: &str| {
                let rest = line.strip_prefix(indent);
                rest.is_some_and(|rest| rest.starts_with('}'))
            };
            lines.by_ref().find(|line| end(line));
        }
    }
    (count, modules)
}

#[test]
fn tests_and_comments_are_not_counted() {
    let text = "//! About.\n\nmod a;\n#[cfg(test)]\nmod b;\n\n#[cfg(test)]\n#[path = \"x\"]\nmod c;\n\nfn d() {\n    // x\n}\n\n\
                #[cfg(test)]\nmod tests {\n    fn e() {\n    }\n}\nfn f() {}\n";
    assert_eq!(read(text), (4, vec!["b".to_owned(), "c".to_owned()]));
    let source = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let sources = [
        source("p/src/lib.rs", text),
        source("p/src/b.rs", "fn g() {}\n"),
        source("p/src/c/h.rs", "fn i() {}\n"),
        source("p/src/a.rs", "fn j() {}\n"),
        source("p/tests/k.rs", "fn l() {}\n"),
    ];
    assert_eq!(built(&sources), 5);
}
