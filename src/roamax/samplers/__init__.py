"""The samplers, one file each: a function that takes a posterior and returns a `Sampler`."""
