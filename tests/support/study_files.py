"""Study files that several tests read."""

HALVING_STUDY = """
name = "small"
command = ["train", "{lr}"]
minimize = "loss"
max_steps = 28
deadline = "20m"
stopping = {name = "halving", n = 16, min_steps = 4, eta = 2}
[space]
lr = { type = "float", low = 0.1, high = 1.0 }
[profile]
seconds_per_step = {1 = 40.0, 2 = 22.0, 4 = 13.0}
"""
"""A study without machines whose trials are planned in stages."""

ON_DEMAND = """
[[cloud]]
machine = "p3.8xlarge"
init = 15
"""
"""A machine type to add to a study file."""
