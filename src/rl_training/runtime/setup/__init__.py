"""What a run is made from before its first step: environments, resolved settings, consent, the loop."""
