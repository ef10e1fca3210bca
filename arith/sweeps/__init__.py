"""Many runs from one file: what they cost, how they run and resume, how far they are.

sweep      the sweep file and its runs               estimate  cost and time of jobs and presets
jobs       runs as jobs, and which are done          status    the table of `tape-arith status`
scheduler  which job runs next                       tables    tables and figures of a sweep
run_sweep  plan a sweep and run it                   engines/  where jobs run
"""
