//! Clock, tasks, sockets and files: live on a completion ring, or simulated from a seed
