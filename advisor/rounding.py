"""What rounding leaves of a ratio: libraries add up in another order on another CPU, so that the last bits differ."""

SLACK = 1e-9  # of a ratio: who is this little beyond a limit is at it, and keeps it
