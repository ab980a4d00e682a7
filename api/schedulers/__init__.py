"""Other schedulers' own protocols, one file each, translated to the Advisor's questions and back."""
