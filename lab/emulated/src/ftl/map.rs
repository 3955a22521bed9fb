//! [`Map`]: the locations of pages, the place of the next page, and the next victim of GC. It knows no time and does no I/O; the
//! drive executes its decisions.
//!
//! Physical pages are numbered group by group. A group is one block of each plane of a LUN; its page `q` is page `q / planes` of
//! plane `q % planes`.
//!
//! Invariants: a logical page has at most one physical page, which names it back. The valid pages of a group are the pages named
//! by a logical page. A group with pages in flight is never collected. The last [`GC_RESERVE`] free groups of a LUN are for GC.

use super::config::{GC_RESERVE, Striping, WORKING_GROUPS};

/// Number that stands for no page.
const NOWHERE: u32 = u32::MAX;

/// Number of collections of a LUN of which at most one levels wear.
const COLLECTIONS_A_LEVELING: u32 = 8;

/// Number of a physical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PhysicalPage(pub(crate) u32);

/// Number of a group of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

/// Number of a LUN, channel by channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LunId(pub(crate) u32);

/// Sizes of a drive, in pages and groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapShape {
    pub(crate) channels: u32,
    pub(crate) luns_per_channel: u32,
    pub(crate) groups_per_lun: u32,
    pub(crate) pages_per_group: u32,
    pub(crate) planes: u32,
    pub(crate) chunk_pages: u32,
    pub(crate) logical_pages: u32,
    pub(crate) striping: Striping,
    pub(crate) wear_spread: u32,
}

impl MapShape {
    pub(crate) const fn luns(&self) -> u32 {
        self.channels * self.luns_per_channel
    }

    pub(crate) const fn groups(&self) -> u32 {
        self.luns() * self.groups_per_lun
    }

    pub(crate) const fn lun_of(&self, group: GroupId) -> LunId {
        LunId(group.0 / self.groups_per_lun)
    }

    pub(crate) const fn group_of(&self, page: PhysicalPage) -> GroupId {
        GroupId(page.0 / self.pages_per_group)
    }

    pub(crate) const fn channel_of(&self, page: PhysicalPage) -> u32 {
        self.lun_of(self.group_of(page)).0 / self.luns_per_channel
    }

    /// Returns the indices of a LUN's groups among the groups of all LUNs.
    fn groups_of(&self, lun: LunId) -> std::ops::Range<usize> {
        let first = (lun.0 * self.groups_per_lun) as usize;
        first..first + self.groups_per_lun as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Free,
    /// Being filled by the host or by GC.
    Open,
    Closed,
    Bad,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    state: GroupState,
    valid: u32,
    /// Pages allocated since the last erase.
    next: u32,
    /// Allocated pages whose program has not ended.
    in_flight: u32,
    erases: u32,
}

#[derive(Clone, Debug, Default)]
struct Lun {
    free: Vec<GroupId>,
    host: Option<GroupId>,
    gc: Option<GroupId>,
    /// Valid pages, and the host's pages in flight.
    used: u32,
    /// Groups that are not bad.
    good: u32,
    collections: u32,
}

/// User of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Host,
    Gc,
}

/// Place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    At(PhysicalPage),
    /// No place before GC has freed a page on that LUN.
    Collect(LunId),
    /// No place: too many blocks are bad.
    Full,
}

/// State of a group found at the start of a drive.
#[derive(Clone, Debug)]
pub(crate) struct FoundGroup {
    /// Pages programmed; `None` if the group needs an erase before further programs.
    pub(crate) next: Option<u32>,
    pub(crate) is_bad: bool,
    pub(crate) erases: u32,
}

/// The map of a drive.
#[derive(Debug)]
pub(crate) struct Map {
    shape: MapShape,
    physical: Vec<u32>,
    logical: Vec<u32>,
    groups: Vec<Group>,
    luns: Vec<Lun>,
    /// Channel of the chunk being written, by write order.
    channel: u32,
    /// Next LUN of each channel.
    cursors: Vec<u32>,
}

impl Map {
    /// Returns the bytes of the table of logical pages.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(self.physical.as_slice()) as u64
    }

    /// Creates the map of a drive with the groups `found` and no valid pages.
    pub(crate) fn new(shape: MapShape, found: impl Fn(GroupId) -> FoundGroup) -> Self {
        let mut luns = Vec::new();
        let mut groups = Vec::new();
        for lun in (0..shape.luns()).map(LunId) {
            let mut state = Lun::default();
            for number in shape.groups_of(lun) {
                let id = GroupId(number as u32);
                let found = found(id);
                let group = if found.is_bad {
                    GroupState::Bad
                } else {
                    state.good += 1;
                    match found.next {
                        Some(0) => {
                            state.free.push(id);
                            GroupState::Free
                        }
                        _ => GroupState::Closed,
                    }
                };
                groups.push(Group {
                    state: group,
                    valid: 0,
                    next: found.next.unwrap_or(shape.pages_per_group),
                    in_flight: 0,
                    erases: found.erases,
                });
            }
            luns.push(state);
        }
        Self {
            physical: vec![NOWHERE; shape.logical_pages as usize],
            logical: vec![NOWHERE; shape.groups() as usize * shape.pages_per_group as usize],
            groups,
            luns,
            channel: shape.channels - 1,
            cursors: vec![0; shape.channels as usize],
            shape,
        }
    }

    pub(crate) fn shape(&self) -> &MapShape {
        &self.shape
    }

    fn lun_of(&mut self, group: GroupId) -> &mut Lun {
        &mut self.luns[self.shape.lun_of(group).0 as usize]
    }

    /// Returns the location of a logical page.
    pub(crate) fn lookup(&self, logical: u32) -> Option<PhysicalPage> {
        let page = self.physical[logical as usize];
        (page != NOWHERE).then_some(PhysicalPage(page))
    }

    /// Begins a chunk, which by write order goes to the next channel.
    pub(crate) fn begin_chunk(&mut self) {
        self.channel = (self.channel + 1) % self.shape.channels;
    }

    /// Allocates the next page of the current chunk for `logical`.
    pub(crate) fn place(&mut self, logical: u32) -> Place {
        let channels = self.shape.channels;
        let (first, others) = match self.shape.striping {
            Striping::WriteOrder => (self.channel, channels),
            Striping::Address => (logical / self.shape.chunk_pages % channels, 1),
        };
        for may_use in [Self::fair_share, Self::capacity] {
            for step in 0..others {
                let channel = (first + step) % channels;
                let Some(lun) = self.next_lun(channel, may_use) else {
                    continue;
                };
                if !self.has_free_page(lun) {
                    return Place::Collect(lun);
                }
                let page = self.allocate(lun, Stream::Host);
                return page.map_or(Place::Full, Place::At);
            }
        }
        Place::Full
    }

    /// Returns the next LUN of a channel in turn, among LUNs that hold fewer pages than `may_use` allows.
    fn next_lun(&mut self, channel: u32, may_use: fn(&Self, LunId) -> u32) -> Option<LunId> {
        let luns = self.shape.luns_per_channel;
        let cursor = self.cursors[channel as usize];
        let turn = (0..luns).map(|step| (cursor + step) % luns).find(|turn| {
            let lun = LunId(channel * luns + turn);
            self.luns[lun.0 as usize].used < may_use(self, lun)
        })?;
        self.cursors[channel as usize] = turn;
        Some(LunId(channel * luns + turn))
    }

    /// Returns how many pages a LUN can hold and still be collected.
    fn capacity(&self, lun: LunId) -> u32 {
        let groups = self.luns[lun.0 as usize]
            .good
            .saturating_sub(WORKING_GROUPS);
        groups * self.shape.pages_per_group
    }

    /// Returns how many pages a LUN should hold, so that its collection frees pages: half of its over-provisioned pages stay
    /// free.
    fn fair_share(&self, lun: LunId) -> u32 {
        let capacity = self.capacity(lun);
        let share = self.shape.logical_pages.div_ceil(self.shape.luns());
        share.midpoint(capacity).min(capacity)
    }

    /// Returns whether the host can have a page of a LUN without GC.
    pub(crate) fn has_free_page(&self, lun: LunId) -> bool {
        let state = &self.luns[lun.0 as usize];
        state.host.is_some() || state.free.len() as u32 > GC_RESERVE
    }

    /// Allocates the next page of a LUN. The page is in flight until it is committed or lost.
    pub(crate) fn allocate(&mut self, lun: LunId, stream: Stream) -> Option<PhysicalPage> {
        let state = &mut self.luns[lun.0 as usize];
        let open = match stream {
            Stream::Host => state.host,
            Stream::Gc => state.gc,
        };
        let id = match open {
            Some(id) => id,
            None => {
                let groups = &self.groups;
                let least = (0..state.free.len())
                    .min_by_key(|&at| (groups[state.free[at].0 as usize].erases, state.free[at]))?;
                let id = state.free.swap_remove(least);
                self.groups[id.0 as usize].state = GroupState::Open;
                id
            }
        };
        let group = &mut self.groups[id.0 as usize];
        let page = group.next;
        group.next += 1;
        group.in_flight += 1;
        let still_open = (group.next < self.shape.pages_per_group).then_some(id);
        if still_open.is_none() {
            group.state = GroupState::Closed;
        }
        match stream {
            Stream::Host => {
                state.host = still_open;
                state.used += 1;
                if group.next.is_multiple_of(self.shape.planes) {
                    let luns = self.shape.luns_per_channel;
                    let cursor = &mut self.cursors[(lun.0 / luns) as usize];
                    *cursor = (lun.0 % luns + 1) % luns;
                }
            }
            Stream::Gc => state.gc = still_open,
        }
        Some(PhysicalPage(id.0 * self.shape.pages_per_group + page))
    }

    /// Ends the program of a host's page: `logical` lies there from now on.
    pub(crate) fn commit(&mut self, logical: u32, page: PhysicalPage) {
        self.unmap(logical);
        self.set(logical, page);
        let group = self.shape.group_of(page);
        self.groups[group.0 as usize].in_flight -= 1;
    }

    /// Ends the program of a copy: `logical` lies there, unless it has been written or discarded in between.
    pub(crate) fn commit_copy(&mut self, logical: u32, from: PhysicalPage, to: PhysicalPage) {
        let group = self.shape.group_of(to);
        self.groups[group.0 as usize].in_flight -= 1;
        if self.lookup(logical) == Some(from) {
            self.unmap(logical);
            self.set(logical, to);
            self.lun_of(group).used += 1;
        }
    }

    /// Gives up an allocated page, whose program failed or was abandoned.
    pub(crate) fn lose(&mut self, page: PhysicalPage, stream: Stream) {
        let group = self.shape.group_of(page);
        self.groups[group.0 as usize].in_flight -= 1;
        if stream == Stream::Host {
            self.lun_of(group).used -= 1;
        }
    }

    /// Retires a group with a bad block: it takes no more pages. Its valid pages stay readable.
    pub(crate) fn retire(&mut self, group: GroupId) {
        let lun = &mut self.luns[self.shape.lun_of(group).0 as usize];
        let state = &mut self.groups[group.0 as usize].state;
        if *state == GroupState::Bad {
            return;
        }
        *state = GroupState::Bad;
        lun.good -= 1;
        lun.host = lun.host.filter(|&open| open != group);
        lun.gc = lun.gc.filter(|&open| open != group);
        lun.free.retain(|&free| free != group);
    }

    /// Records the location of a logical page found at the start of the drive.
    pub(crate) fn found(&mut self, logical: u32, page: PhysicalPage) {
        self.set(logical, page);
        self.lun_of(self.shape.group_of(page)).used += 1;
    }

    /// Reopens groups that hold valid pages and are not full. GC gets the first such group of each LUN: after a power cut, its
    /// free pages are part of the pages that GC needs, and the host would use them up. A group without valid pages stays closed,
    /// to be erased.
    pub(crate) fn reopen(&mut self) {
        for lun in (0..self.shape.luns()).map(LunId) {
            let state = &mut self.luns[lun.0 as usize];
            for number in self.shape.groups_of(lun) {
                let group = &mut self.groups[number];
                let is_full = group.next == self.shape.pages_per_group;
                if group.state != GroupState::Closed || group.valid == 0 || is_full {
                    continue;
                }
                let open = match (state.gc, state.host) {
                    (None, _) => &mut state.gc,
                    (_, None) => &mut state.host,
                    _ => break,
                };
                *open = Some(GroupId(number as u32));
                group.state = GroupState::Open;
            }
        }
    }

    fn set(&mut self, logical: u32, page: PhysicalPage) {
        self.physical[logical as usize] = page.0;
        self.logical[page.0 as usize] = logical;
        self.groups[self.shape.group_of(page).0 as usize].valid += 1;
    }

    /// Removes the location of a logical page.
    pub(crate) fn unmap(&mut self, logical: u32) {
        let Some(page) = self.lookup(logical) else {
            return;
        };
        let group = self.shape.group_of(page);
        self.physical[logical as usize] = NOWHERE;
        self.logical[page.0 as usize] = NOWHERE;
        self.groups[group.0 as usize].valid -= 1;
        self.lun_of(group).used -= 1;
    }

    /// Returns the group of a LUN to collect: the group with the fewest valid pages or, when wear is uneven, the least erased
    /// group. Returns `None` when a collection would free no page.
    pub(crate) fn victim(&mut self, lun: LunId) -> Option<GroupId> {
        let range = self.shape.groups_of(lun);
        let first = range.start;
        let groups = &self.groups[range];
        let closed = |group: &&Group| group.state == GroupState::Closed && group.in_flight == 0;
        let (at, greedy) = groups
            .iter()
            .enumerate()
            .filter(|(_, group)| closed(group))
            .min_by_key(|(_, group)| (group.valid, group.erases))?;
        let state = &mut self.luns[lun.0 as usize];
        state.collections = state.collections.wrapping_add(1);
        if state.collections.is_multiple_of(COLLECTIONS_A_LEVELING) {
            let most = groups.iter().map(|group| group.erases).max().unwrap_or(0);
            let least = groups.iter().enumerate().filter(|(_, group)| closed(group));
            if let Some((at, group)) = least.min_by_key(|(_, group)| group.erases)
                && most - group.erases > self.shape.wear_spread
            {
                return Some(GroupId((first + at) as u32));
            }
        }
        (greedy.valid < self.shape.pages_per_group).then_some(GroupId((first + at) as u32))
    }

    /// Returns whether a closed group of a LUN has pages in flight.
    pub(crate) fn has_pages_in_flight(&self, lun: LunId) -> bool {
        self.groups[self.shape.groups_of(lun)]
            .iter()
            .any(|group| group.state == GroupState::Closed && group.in_flight > 0)
    }

    /// Returns the first valid pages of a group, at most `limit`, with their logical pages.
    pub(crate) fn valid_pages(&self, group: GroupId, limit: usize) -> Vec<(PhysicalPage, u32)> {
        let first = group.0 * self.shape.pages_per_group;
        (first..first + self.shape.pages_per_group)
            .filter(|&page| self.logical[page as usize] != NOWHERE)
            .map(|page| (PhysicalPage(page), self.logical[page as usize]))
            .take(limit)
            .collect()
    }

    /// Marks a group as erased and free.
    pub(crate) fn erased(&mut self, group: GroupId) {
        let state = &mut self.groups[group.0 as usize];
        state.state = GroupState::Free;
        state.next = 0;
        state.erases += 1;
        self.lun_of(group).free.push(group);
    }

    /// Checks the invariants of the module.
    #[cfg(test)]
    pub(crate) fn verify(&self) {
        let mut valid = vec![0; self.groups.len()];
        for (logical, &page) in self.physical.iter().enumerate() {
            if page != NOWHERE {
                assert_eq!(
                    self.logical[page as usize], logical as u32,
                    "page {page} names it back"
                );
                valid[self.shape.group_of(PhysicalPage(page)).0 as usize] += 1;
            }
        }
        let named = self
            .logical
            .iter()
            .filter(|&&logical| logical != NOWHERE)
            .count();
        assert_eq!(
            named,
            valid.iter().sum::<u32>() as usize,
            "no page is named twice"
        );
        for (number, group) in self.groups.iter().enumerate() {
            assert_eq!(group.valid, valid[number], "valid pages of group {number}");
            assert!(
                group.valid + group.in_flight <= group.next,
                "group {number}: {group:?}"
            );
            if group.state == GroupState::Free {
                assert_eq!((group.valid, group.next), (0, 0), "free group {number}");
            }
        }
        for lun in (0..self.shape.luns()).map(LunId) {
            let state = &self.luns[lun.0 as usize];
            let in_range = |group: &GroupId| self.shape.lun_of(*group) == lun;
            assert!(state.free.iter().all(in_range));
            let groups = &self.groups[self.shape.groups_of(lun)];
            let valid: u32 = groups.iter().map(|group| group.valid).sum();
            assert!(state.used >= valid, "lun {lun:?}");
        }
    }
}
