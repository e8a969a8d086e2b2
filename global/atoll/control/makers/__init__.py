"""What makes Volcano Jobs on the host: JobFlows and CronJobs.

`flow` and `cron` decide and are pure; `controller` does the input and output of both. The Jobs go through admission and
their queues like those of users.
"""
