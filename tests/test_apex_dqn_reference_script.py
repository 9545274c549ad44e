"""examples/apex_dqn_cartpole_reference.py, run as a smoke command."""

from reference_scripts import script_test

test_script_trains_evaluates_and_reports = script_test("apex_dqn", "cartpole")
