"""Many runs from one file: plan, estimate, run, resume and report them.

sweep      the sweep file and its runs               estimate  the cost and time of jobs
jobs       kinds of jobs, which are done, which run next  status    the table of `tape-arith status`
run_sweep  run a sweep; its tables and figures       slots     the number of parallel jobs
engines/   where jobs run
"""
