"""Errors of the model and of every baseline under each protocol, on the same folds; nothing is tuned here."""
