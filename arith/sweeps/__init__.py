"""Many runs from one file: what they cost, how they run and resume, how far they are.

sweep      the sweep file and its runs               estimate  what jobs cost and how long they take
jobs       what to do, what is done, what runs next  status    the table of `tape-arith status`
run_sweep  run a sweep; its tables and figures       slots     how many jobs run side by side
engines/   where jobs run
"""
