from hypothesis import settings

# The time of one example says more about the machine than about the code.
settings.register_profile("lethe", deadline=None)
settings.load_profile("lethe")
