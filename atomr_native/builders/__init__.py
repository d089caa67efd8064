"""What the builders of several libraries share: from a plan's specification to work for a lane."""
