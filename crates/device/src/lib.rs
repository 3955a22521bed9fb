//! Flash and disk devices: files, block devices, memory, and a wrapper that injects faults
