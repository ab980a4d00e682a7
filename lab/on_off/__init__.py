"""On/off measurement: members are frozen and thawed in short random alternation, as a lock-in amplifier does."""
