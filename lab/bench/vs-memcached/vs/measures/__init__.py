"""The measurements: each module takes the bench, starts what it needs, and records rows."""
