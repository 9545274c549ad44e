"""Watch an agent, record a video, replay a crash."""
