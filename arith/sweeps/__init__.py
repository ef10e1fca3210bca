"""Many runs from one file: plan, estimate, run, resume and report them.

sweep      the sweep file and its runs           estimate  the cost and time of jobs
jobs       kinds of jobs, and which are done     slots     the number of parallel jobs
run_jobs   run jobs in order                     status    the table of `tape-arith status`
run_sweep  plan and run a sweep                  engines/  where jobs run
results    its tables and figures
"""
