"""examples/apex_td3_pendulum_reference.py, run as a smoke command."""

from reference_scripts import script_test

test_script_trains_evaluates_and_reports = script_test("apex_td3", "pendulum")
