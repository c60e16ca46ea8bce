"""Programs that tests use: fixtures, a Hub on this machine, fresh processes, and the counts of test_house."""
