"""The service: many streams over HTTP, and the labelling page. It touches no tensor.

Read first: `app.py`, then `stream_worker.py` (one thread a learner) and `learner_log.py` (learner and log
in step).
Must not know: studies, and how a method computes.
"""
