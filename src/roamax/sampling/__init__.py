"""From a sampler to draws: batches of data, the compiled loop, chains on devices, draws on disk, and the runner."""
