"""Diagnoses in words: rules over the metric stream of a run that name a likely cause and the setting to change."""
