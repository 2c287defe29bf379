"""The samplers, one file each: functions that take a posterior and return a `Sampler`."""
