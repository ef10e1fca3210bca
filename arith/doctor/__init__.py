"""What `tape-arith doctor` looks at: a file for each part of a machine."""
