"""A night over several hosts: each measures the testbeds it reaches, results come together.

`measuring` runs one testbed and publishes its run; `coordinator` distributes testbeds over the
workers of Dask, `job_arrays` over those of a batch system; `outcomes` stores and collects how each
testbed ended.
"""
