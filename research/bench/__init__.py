"""One table of Cotenant beside baselines, made anew within ten minutes on two slow CPUs."""
