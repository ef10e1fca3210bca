"""Where jobs run. An engine starts jobs and tells how they ended; the scheduler decides the rest.

engine   what an engine is, and the engines by name: a file of this folder is an engine
local    in this process, or subprocesses of this machine
ray      tasks of a Ray cluster
slurm    arrays of batch jobs
worker   a job on the node that a cluster chose for it, and the file that says where it is
"""
