//! Counts words of comments and documents, and words that mark a sentence whose subject has no name.

use std::iter::Sum;

/// Counts over a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prose {
    /// All words outside of code.
    pub(crate) words: usize,
    /// Occurrences of the word `what`.
    pub(crate) what: usize,
    /// Occurrences of `so many`, `so much` and `of them`, and sentences that begin with `Of`.
    pub(crate) marks: usize,
}

impl Prose {
    /// Counts the words of a source's comments that have a line to themselves.
    pub(crate) fn of_comments(text: &str) -> Self {
        let lines = text.lines().map(str::trim_start);
        let comments = lines.filter_map(|line| line.strip_prefix("//"));
        let words = comments.map(|line| line.trim_start_matches(['/', '!']));
        Self::of_lines(words)
    }

    /// Counts the words of a document.
    pub(crate) fn of_markdown(text: &str) -> Self {
        Self::of_lines(text.lines())
    }

    fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut prose = String::new();
        let mut in_fence = false;
        for line in lines {
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
            } else if !in_fence {
                // Text between backticks is code.
                let outside = line.split('`').step_by(2);
                prose.extend(outside.flat_map(|part| [part, " "]));
                prose.push('\n');
            }
        }
        Self::of_text(&prose)
    }

    fn of_text(text: &str) -> Self {
        let mut found = Self::default();
        let mut before = String::new();
        let mut begins = true;
        for piece in text.split_inclusive(|sign: char| !sign.is_alphanumeric() && sign != '\'') {
            let word = piece.trim_end_matches(|sign: char| !sign.is_alphanumeric() && sign != '\'');
            if !word.is_empty() {
                let lower = word.to_lowercase();
                found.words += 1;
                found.what += usize::from(lower == "what");
                found.marks += usize::from(
                    matches!(
                        (before.as_str(), lower.as_str()),
                        ("so", "many" | "much") | ("of", "them")
                    ) || (begins && word == "Of"),
                );
                before = lower;
                begins = false;
            }
            begins |= piece.ends_with(['.', ':', '|']);
        }
        found
    }

    /// Returns `count` scaled to 10,000 words, rounded up.
    pub(crate) fn in_10_000(&self, count: usize) -> usize {
        (count * 10_000).div_ceil(self.words.max(1))
    }
}

impl Sum for Prose {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, part| Self {
            words: sum.words + part.words,
            what: sum.what + part.what,
            marks: sum.marks + part.marks,
        })
    }
}

#[test]
fn marks_are_counted_outside_of_code() {
    let source = "/// Of those `what` so many.\nfn f() {} // not what\n//! What of them: of\n//! course. Of late, what?";
    let found = Prose::of_comments(source);
    assert_eq!((found.what, found.marks), (2, 4));
    assert_eq!(found.words, 12);
    assert_eq!(found.in_10_000(found.what), 1667);
    let document = "One.\n```\nwhat\n```\nOf late what is so much.\n";
    let found = Prose::of_markdown(document);
    assert_eq!((found.words, found.what, found.marks), (7, 1, 2));
}
