"""What makes Volcano Jobs on the host: JobFlows, CronJobs and HyperJobs.

`flow`, `cron` and `hyper` decide and are pure; `controller` does the input and output of all. The Jobs go through
admission and their queues like users' own.
"""
