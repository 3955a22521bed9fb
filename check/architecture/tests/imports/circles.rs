//! Circles in a graph of files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An import: file `from` names an item that file `to` defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The name of the item.
    pub(crate) name: String,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} ({})", self.from, self.to, self.name)
    }
}

/// Files that can each reach all the others.
pub(crate) struct Circle {
    pub(crate) files: Vec<String>,
    /// The imports between these files.
    edges: Vec<Edge>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  circle of {}", self.files.join(", "))?;
        let mut names: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for Edge { from, to, name } in &self.edges {
            names.entry((from, to)).or_default().push(name);
        }
        names.into_iter().try_for_each(|((from, to), names)| {
            writeln!(f, "    {from} -> {to} ({})", names.join(", "))
        })
    }
}

/// Returns the strongly connected components of more than one file.
pub(crate) fn circles(edges: &[Edge]) -> Vec<Circle> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for edge in edges {
        next.entry(&edge.from).or_default().insert(&edge.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|from| (*from, reached_from(from, &next)))
        .collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for (file, below) in &reached {
        if !below.contains(file) || !seen.insert(file) {
            continue;
        }
        let members: BTreeSet<&str> = below
            .iter()
            .copied()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(file)))
            .collect();
        seen.extend(&members);
        let inside = |edge: &&Edge| {
            members.contains(edge.from.as_str()) && members.contains(edge.to.as_str())
        };
        found.push(Circle {
            files: members.iter().map(|&name| name.to_owned()).collect(),
            edges: edges.iter().filter(inside).cloned().collect(),
        });
    }
    found
}

/// Returns the files that can be reached from a file over at least one edge.
fn reached_from<'a>(
    file: &'a str,
    next: &BTreeMap<&'a str, BTreeSet<&'a str>>,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(at) = open.pop() {
        for &to in next.get(at).into_iter().flatten() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}
