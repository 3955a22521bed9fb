//! The cache: DRAM tier, segment store, placements, request paths
