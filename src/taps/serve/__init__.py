"""A service that learns while it serves: HTTP, one worker for each learner, a store that loses nothing."""
