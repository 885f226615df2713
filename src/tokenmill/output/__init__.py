"""The output directory: what lies where, what its JSON says, how a unit is committed, how a job is finished."""
