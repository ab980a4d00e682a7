"""Evaluation: errors of the model and of all baselines under each protocol, on the same folds. Nothing is tuned
here."""
