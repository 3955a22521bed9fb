//! The workloads that users can name, for lists, help texts and error messages.

/// A workload that users can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Form of the name; capitals stand for parts that the user fills in.
    pub form: &'static str,
    /// Description in one line.
    pub about: &'static str,
}

const fn known(form: &'static str, about: &'static str) -> Known {
    Known { form, about }
}

/// All workloads, with a line about each, for lists and help texts.
#[rustfmt::skip]
pub const CATALOG: [Known; 13] = [
    known("uniform", "every key equally likely"),
    known("zipfian", "YCSB: Zipf's law, exponent 0.99, popular keys scattered by a hash"),
    known("hotspot", "YCSB: 20 % of the keys get 80 % of the operations"),
    known("normal", "normally distributed around a mean, which may drift"),
    known("latest", "YCSB: every write makes a new key, and new keys are the most read"),
    known("single", "every operation on the same key"),
    known("etc", "Facebook's ETC pool: its key and value sizes, 30 reads to a write, zipfian"),
    known("memcachier", "twenty applications of a memcached service, with keys nobody reads"),
    known("memcachier:APP", "one of them, for example memcachier:app19"),
    known("twitter:NN", "Twitter's cluster NN, from its published statistics"),
    known("cachelib:PREFIX", "histograms of CacheLib: PREFIX_sizes.json and PREFIX_pop.json"),
    known("trace:PATH", "a recorded trace; its format is told by name and content"),
    known("trace:FORMAT:PATH", "a recorded trace of the given format"),
];

/// Returns the forms of all names, separated by commas.
pub(crate) fn forms() -> String {
    CATALOG.map(|known| known.form).join(", ")
}

/// The names without parts to fill in: the first names of the catalog.
pub const NAMES: [&str; 8] = {
    let mut names = [""; 8];
    let mut number = 0;
    while number < names.len() {
        names[number] = CATALOG[number].form;
        number += 1;
    }
    names
};
