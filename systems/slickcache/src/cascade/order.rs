//! Order of use of the entries of Tier 1, for real LRU.
//!
//! A doubly linked list with an index by key. It takes about 22 to 43 bytes an entry, while Tier 1 itself takes 9.5: it
//! serves as a comparison with CLOCK (figure 7), which takes one bit.

use hashbrown::HashTable;
use on_flash::bloom::mix;

/// Sentinel node at both ends of the list.
const ENDS: u32 = 0;

pub(super) struct Order {
    /// The first node is [`ENDS`]: its `older` is the most recently used key, its `newer` the least recently used one.
    nodes: Vec<Node>,
    /// Nodes by key.
    by_key: HashTable<u32>,
    /// First node of the chain of unused nodes, or [`ENDS`].
    free: u32,
}

struct Node {
    key: u64,
    newer: u32,
    older: u32,
}

impl Order {
    pub(super) fn new() -> Self {
        let ends = Node {
            key: 0,
            newer: ENDS,
            older: ENDS,
        };
        Self {
            nodes: vec![ends],
            by_key: HashTable::new(),
            free: ENDS,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.by_key.allocation_size()
    }

    /// Makes a key the most recently used, and adds it if it is new.
    pub(super) fn touch(&mut self, key: u64) {
        let node = match self.find(key) {
            Some(node) => {
                self.unlink(node);
                node
            }
            None => self.add(key),
        };
        let newest = self.nodes[ENDS as usize].older;
        self.nodes[node as usize].newer = ENDS;
        self.nodes[node as usize].older = newest;
        self.nodes[newest as usize].newer = node;
        self.nodes[ENDS as usize].older = node;
    }

    pub(super) fn remove(&mut self, key: u64) {
        let Some(node) = self.find(key) else { return };
        self.unlink(node);
        let found = self.by_key.find_entry(mix(key), |&other| other == node);
        if let Ok(found) = found {
            found.remove();
        }
        self.nodes[node as usize].older = self.free;
        self.free = node;
    }

    /// Returns the least recently used key.
    pub(super) fn oldest(&self) -> Option<u64> {
        let oldest = self.nodes[ENDS as usize].newer;
        (oldest != ENDS).then(|| self.nodes[oldest as usize].key)
    }

    fn find(&self, key: u64) -> Option<u32> {
        let is_it = |&node: &u32| self.nodes[node as usize].key == key;
        self.by_key.find(mix(key), is_it).copied()
    }

    /// Adds a node for a key that has none. The caller links it.
    fn add(&mut self, key: u64) -> u32 {
        let node = if self.free == ENDS {
            self.nodes.push(Node {
                key,
                newer: ENDS,
                older: ENDS,
            });
            u32::try_from(self.nodes.len() - 1).expect("a partition has fewer than 2^32 entries")
        } else {
            let node = self.free;
            self.free = self.nodes[node as usize].older;
            self.nodes[node as usize].key = key;
            node
        };
        let nodes = &self.nodes;
        self.by_key
            .insert_unique(mix(key), node, |&node| mix(nodes[node as usize].key));
        node
    }

    fn unlink(&mut self, node: u32) {
        let Node { newer, older, .. } = self.nodes[node as usize];
        self.nodes[newer as usize].older = older;
        self.nodes[older as usize].newer = newer;
    }
}
